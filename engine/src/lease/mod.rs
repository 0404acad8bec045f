//! Leases: who holds which keys until when.
