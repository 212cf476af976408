"""Stored profiles."""

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from api.db.rows import ProfileRow
from autoplan.spec import Profile
from autoplan.spec.codec import canonical_json, content_hash, from_json, to_jsonable


def add_profile(session: Session, profile: Profile) -> tuple[ProfileRow, bool]:
    """Store a profile under the hash of its content; returns its row, and whether it is new."""
    data = to_jsonable(profile)
    profile_id = content_hash(data)
    if (known := _find(session, profile_id)) is not None:
        return known, False
    row = ProfileRow(
        id=profile_id,
        content=canonical_json(data),
        cluster=profile.cluster.name,
        num_devices=profile.cluster.num_devices,
        measured_at=profile.provenance.date,
    )
    session.add(row)
    session.flush()
    return row, True


def get_profile(session: Session, profile_id: str) -> Profile | None:
    """Return the profile, if there is one of this id."""
    row = _find(session, profile_id)
    return None if row is None else from_json(Profile, row.content, where=f"profile {profile_id}")


def get_newest_profile(session: Session) -> tuple[str, Profile] | None:
    """Return the id and value of the profile that was stored last."""
    row = session.scalar(select(ProfileRow).order_by(ProfileRow.sequence.desc()).limit(1))
    return None if row is None else (row.id, from_json(Profile, row.content, where=f"profile {row.id}"))


def list_profiles(session: Session, *, limit: int, before: int | None) -> list[ProfileRow]:
    """Return up to `limit` profiles, newest first; those older than sequence number `before`."""
    query = select(ProfileRow).options(defer(ProfileRow.content, raiseload=True))
    if before is not None:
        query = query.where(ProfileRow.sequence < before)
    return list(session.scalars(query.order_by(ProfileRow.sequence.desc()).limit(limit)))


def _find(session: Session, profile_id: str) -> ProfileRow | None:
    return session.scalar(select(ProfileRow).where(ProfileRow.id == profile_id))
