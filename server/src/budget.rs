//! The memory budget: what clients make the process hold beside the store itself.
//!
//! The budget of the process is split evenly over keyspaces and shards; each part is a [`Share`],
//! kept by plain cells on its shard. What is held is charged where it is taken and given back where
//! it goes, never estimated twice. A fuller share answers in steps, each before the next:
//!
//! ```text
//! calm ─► tight: streams run less far ahead of their clients, lists and events in small pieces
//!      ─► full:  connections that hold much are read from at a trickle
//!      ─► busy:  calls get "etcdserver: too many requests"
//!      ─► over:  calls and watchers get ResourceExhausted, new connections are closed
//! ```
//! Consensus, lease expiry and compaction are no clients: they take nothing from a share. Calls
//! that free something (compact, revoke, delete, alarm) or only look are served in every step.

use std::cell::Cell;
use std::rc::Rc;

use ringbolt_proto::method::{Method, Name};

use crate::limits::{
    ANSWER_FREE_BYTES, MEMORY_BUDGET_BYTES_MAX, MEMORY_BUDGET_BYTES_MIN,
    MEMORY_BUDGET_PART_OF_MEMORY,
};

/// What a share is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Connections and what they have not understood or written yet.
    Connections = 0,
    /// Calls in flight and their requests, those that wait to be proposed included.
    Calls = 1,
    /// Answers that wait for flow control or for the socket.
    Output = 2,
    /// Watchers.
    Watchers = 3,
}

/// Owners by the names that metrics show.
pub const OWNERS: [(Owner, &str); 4] = [
    (Owner::Connections, "connections"),
    (Owner::Calls, "calls"),
    (Owner::Output, "output"),
    (Owner::Watchers, "watchers"),
];

/// How full a share is. Each step includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Below a quarter.
    Calm,
    /// From a quarter on.
    Tight,
    /// From half on.
    Full,
    /// From three quarters on.
    Busy,
    /// From seven eighths on.
    Over,
}

/// Bytes held, by owner.
pub type Held = [usize; 4];

/// One keyspace's part of the budget on one shard.
#[derive(Debug)]
pub struct Share {
    bytes: usize,
    held: [Cell<usize>; 4],
    total: Cell<usize>,
}

impl Share {
    /// A share of so many bytes, nothing of it held.
    #[must_use]
    pub fn new(bytes: usize) -> Rc<Share> {
        Rc::new(Share { bytes, held: Default::default(), total: Cell::new(0) })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replaces a charge of `before` bytes by one of `after`.
    pub fn recharge(&self, owner: Owner, before: usize, after: usize) {
        if before != after {
            let held = &self.held[owner as usize];
            assert!(held.get() >= before, "{owner:?} gives back more than it holds");
            held.set(held.get() - before + after);
            self.total.set(self.total.get() - before + after);
        }
    }

    /// What is held, by owner.
    #[must_use]
    pub fn held(&self) -> Held {
        std::array::from_fn(|index| self.held[index].get())
    }

    /// How full it is.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let eighths = self.total.get().saturating_mul(8) / self.bytes.max(1);
        match eighths {
            0 | 1 => Pressure::Calm,
            2 | 3 => Pressure::Tight,
            4 | 5 => Pressure::Full,
            6 => Pressure::Busy,
            _ => Pressure::Over,
        }
    }

    /// Whether so many bytes more leave it in a step in which nobody else is turned away.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let after = self.total.get().saturating_add(bytes);
        bytes <= ANSWER_FREE_BYTES || after.saturating_mul(8) < self.bytes.saturating_mul(6)
    }

    /// Whether a call of this method is turned away now, and in which step.
    #[must_use]
    pub fn refuses(&self, method: &Method) -> Option<Pressure> {
        let pressure = self.pressure();
        (pressure >= Pressure::Busy && !has_reserve(method)).then_some(pressure)
    }
}

/// Methods that free something, keep something alive, or tell an operator what is wrong.
fn has_reserve(method: &Method) -> bool {
    matches!(
        method.name,
        Name::Compact
            | Name::DeleteRange
            | Name::LeaseRevoke
            | Name::LeaseKeepAlive
            | Name::Alarm
            | Name::Status
            | Name::MemberList
            | Name::HealthCheck
    )
}

/// The budget of the process: what was asked for, or a part of the memory there is.
#[must_use]
pub fn process_bytes(asked: u64, memory_bytes: u64) -> usize {
    let chosen = if asked > 0 {
        asked
    } else {
        let part = memory_bytes / MEMORY_BUDGET_PART_OF_MEMORY;
        part.clamp(MEMORY_BUDGET_BYTES_MIN, MEMORY_BUDGET_BYTES_MAX)
    };
    usize::try_from(chosen).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use ringbolt_proto::method::METHODS;

    use super::*;

    fn method(name: &str) -> &'static Method {
        METHODS.iter().find(|method| method.method == name).expect("a method")
    }

    /// Steps come in their order, and what is given back lowers them again.
    #[test]
    fn steps_of_pressure() {
        let share = Share::new(800);
        let mut seen = vec![share.pressure()];
        for held in (0..800).step_by(100) {
            share.recharge(Owner::Output, held, held + 100);
            seen.push(share.pressure());
        }
        use Pressure::{Busy, Calm, Full, Over, Tight};
        assert_eq!(seen, [Calm, Calm, Tight, Tight, Full, Full, Busy, Over, Over]);
        assert_eq!(share.refuses(method("Put")), Some(Over));
        assert_eq!(share.refuses(method("LeaseRevoke")), None);
        share.recharge(Owner::Output, 800, 600);
        assert_eq!(share.refuses(method("Range")), Some(Busy));
        assert_eq!(share.refuses(method("Compact")), None);
        share.recharge(Owner::Output, 600, 0);
        assert_eq!((share.pressure(), share.held()), (Calm, [0; 4]));
        assert_eq!(share.refuses(method("Put")), None);
    }

    /// Asked for, a part of the memory, and its bounds.
    #[test]
    fn size_of_the_budget() {
        assert_eq!(process_bytes(5, 1 << 40), 5);
        assert_eq!(process_bytes(0, 4 << 30), 256 << 20);
        assert_eq!(process_bytes(0, 1 << 40), 512 << 20);
        assert_eq!(process_bytes(0, 1 << 20), 64 << 20);
    }
}
