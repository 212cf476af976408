"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) on one rank, as it is trained: latents are expanded."""

from autoplan.spec import LatentAttention
from costmodels.operations.attention import core_operations
from costmodels.operations.operation import Operation, Product, product
from costmodels.operations.pointwise import head_norms, rotary
from costmodels.operations.sizes import Sizes, shares


def latent_operations(sizes: Sizes, mixer: LatentAttention) -> list[Operation]:
    """Return the operations between the norm and the residual sum; the down projections are not cut by tp."""
    tokens, element, hidden = sizes.tokens, sizes.element, sizes.hidden
    heads = shares(mixer.num_heads, sizes.tp)
    key_dim = mixer.nope_head_dim + mixer.rope_head_dim
    latent = mixer.kv_lora_rank + mixer.rope_head_dim
    queries, values = heads * key_dim, heads * mixer.value_head_dim
    expanded = heads * (mixer.nope_head_dim + mixer.value_head_dim)
    down = [Product(m=tokens, k=hidden, n=latent)]
    up = [Product(m=tokens, k=mixer.kv_lora_rank, n=expanded)]
    ranks = mixer.kv_lora_rank
    if mixer.q_lora_rank is None:
        down.append(Product(m=tokens, k=hidden, n=queries))
        kept = tokens * (latent + queries) * element
        rebuilt = tokens * (heads * key_dim + values) * element
        alternate = (queries, expanded, 0)
    else:
        ranks += mixer.q_lora_rank
        down.append(Product(m=tokens, k=hidden, n=mixer.q_lora_rank))
        up.append(Product(m=tokens, k=mixer.q_lora_rank, n=queries))
        kept = tokens * (latent + mixer.q_lora_rank) * element
        rebuilt = tokens * (2 * heads * key_dim + values) * element
        alternate = (mixer.q_lora_rank + latent, 0, hidden)
    return [
        product("down", *down, saved=kept, alternate=1.0 * tokens * alternate[0] * element),
        head_norms(sizes, ranks),
        product("up", *up, saved=rebuilt, alternate=1.0 * tokens * alternate[1] * element, tag="up_projections"),
        rotary(sizes, heads * 2 * mixer.rope_head_dim),
        *core_operations(
            sizes,
            heads=heads,
            key_dim=key_dim,
            value_dim=mixer.value_head_dim,
            kv_bytes=1.0 * tokens * heads * (key_dim + mixer.value_head_dim) * element,
            window=None,
        ),
        product("output", Product(m=tokens, k=values, n=hidden), alternate=1.0 * tokens * alternate[2] * element),
    ]
