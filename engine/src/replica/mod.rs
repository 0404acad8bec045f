//! One member of one keyspace: propose, turn, apply, publish.
