"""ZMailer's spool: message control files, in which a state change is one tag byte."""

from engine.stores.zmailer.store import ZmailerStore

__all__ = ["ZmailerStore"]
