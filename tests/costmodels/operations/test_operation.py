from costmodels.operations import Operation, Product, total_saved
from costmodels.operations.operation import product


def test_linear_layers_launch_their_products_alone():
    op = product("both", Product(m=1, k=2, n=3), Product(m=1, k=2, n=4), saved=8.0)
    assert [p.launches for p in op.products] == [1, 1]
    assert (op.forward_kernels, op.backward_kernels, op.saved, op.tag) == (0, 0, 8.0, "product")


def test_what_is_redone_is_not_kept():
    operations = [
        Operation(name="a", tag="norms", saved=1.0),
        Operation(name="b", tag="pointwise", saved=10.0),
        Operation(name="c", tag="product", saved=100.0),
    ]
    assert total_saved(operations) == 111
    assert total_saved(operations, frozenset({"norms", "pointwise"})) == 100
    assert total_saved([]) == 0


def test_where_every_second_product_is_repeated_others_keep_their_output():
    """Nothing else is kept, whatever its tag."""
    operations = [
        product("a", Product(m=1, k=2, n=3), saved=8.0, alternate=5.0),
        product("b", Product(m=1, k=2, n=3), saved=16.0),
        Operation(name="c", tag="fused", saved=100.0, alternate=50.0),
        Operation(name="d", tag="norms", saved=1000.0),
    ]
    assert total_saved(operations, frozenset({"norms", "pointwise", "alternate_products"})) == 55
