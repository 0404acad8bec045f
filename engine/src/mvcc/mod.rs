//! Keys, their versions, and the revision log.
