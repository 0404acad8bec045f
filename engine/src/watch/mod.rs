//! Watchers as cursors into the revision log.
