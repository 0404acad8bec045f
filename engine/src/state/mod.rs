//! Apply: the one place where a command changes the store.
