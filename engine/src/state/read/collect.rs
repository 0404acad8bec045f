//! What a range keeps of the keys it walks over: filters, order and limit.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use ringbolt_proto::etcdserverpb::RangeRequest;
use ringbolt_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use ringbolt_proto::mvccpb::KeyValue;

use crate::mvcc::{Values, VersionRef};

/// Takes versions in key order, gives key-values in the order of the request.
///
/// With a limit it never holds more than one key above it, whatever the order: a sorted range
/// drops what can no longer be among the first. Equal sort keys stay in key order.
#[derive(Debug)]
pub(super) struct Collector {
    filters: Filters,
    order: Order,
    values: Values,
    /// Key-values wanted at most; `usize::MAX` is all.
    limit: usize,
    /// Whether the walk may end as soon as more than `limit` were taken.
    stops_early: bool,
    keys_only: bool,
    hides_lease: bool,
    /// Key-values that passed the filters so far.
    taken: usize,
    /// Key-values of a sorted range that left so far.
    given: usize,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    InKeyOrder(Vec<KeyValue>),
    Sorted(BTreeMap<(Rank, usize), KeyValue>),
}

/// Where a key-value stands in a sorted range. One range uses one variant.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Rising(i64),
    Falling(Reverse<i64>),
    RisingBytes(Bytes),
    FallingBytes(Reverse<Bytes>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Key,
    By { target: SortTarget, falling: bool },
}

/// Inclusive bounds; 0 is no bound. A negative lower bound lets all pass, a negative upper none.
#[derive(Clone, Copy, Debug)]
struct Filters {
    mod_min: i64,
    mod_max: i64,
    create_min: i64,
    create_max: i64,
}

impl Filters {
    fn any(&self) -> bool {
        [self.mod_min, self.mod_max, self.create_min, self.create_max]
            .iter()
            .any(|bound| *bound != 0)
    }

    fn pass(&self, version: &VersionRef<'_>) -> bool {
        let within = |value: i64, min: i64, max: i64| {
            (min == 0 || value >= min) && (max == 0 || value <= max)
        };
        within(version.mod_.0, self.mod_min, self.mod_max)
            && within(version.create.0, self.create_min, self.create_max)
    }
}

impl Collector {
    /// Prepares for a request that was validated.
    pub(super) fn new(request: &RangeRequest) -> Collector {
        let target = SortTarget::try_from(request.sort_target).unwrap_or(SortTarget::Key);
        let sort_order = SortOrder::try_from(request.sort_order).unwrap_or(SortOrder::None);
        let order = match (sort_order, target) {
            (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => Order::Key,
            (SortOrder::None | SortOrder::Ascend, target) => Order::By { target, falling: false },
            (SortOrder::Descend, target) => Order::By { target, falling: true },
        };
        // The revision and the order of a keys-only range come from the index alone, which knows
        // no leases. Source: etcd 3.7, observed.
        let needs_values = !request.keys_only || target == SortTarget::Value;
        let kept = match order {
            Order::Key => Kept::InKeyOrder(Vec::new()),
            Order::By { .. } => Kept::Sorted(BTreeMap::new()),
        };
        let limit = match usize::try_from(request.limit) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        };
        let filters = Filters {
            mod_min: request.min_mod_revision,
            mod_max: request.max_mod_revision,
            create_min: request.min_create_revision,
            create_max: request.max_create_revision,
        };
        Collector {
            filters,
            order,
            values: if needs_values { Values::Full } else { Values::KeysOnly },
            limit,
            // Without an explicit order and filters the limit cuts in key order, and what is left
            // is sorted. Source: etcd, observed.
            stops_early: order == Order::Key || (sort_order == SortOrder::None && !filters.any()),
            keys_only: request.keys_only,
            hides_lease: !needs_values,
            taken: 0,
            given: 0,
            kept,
        }
    }

    /// Keeps key order whatever the request says, as a stream does.
    pub(super) fn in_key_order(mut self) -> Collector {
        self.order = Order::Key;
        self.stops_early = true;
        self.kept = Kept::InKeyOrder(Vec::new());
        self
    }

    /// Whether a further key would change nothing but `more`, which is known by now.
    pub(super) fn is_full(&self) -> bool {
        self.stops_early && self.taken > self.limit
    }

    /// Whether keys leave in the order in which they came: then they can leave at once.
    pub(super) fn is_in_key_order(&self) -> bool {
        self.order == Order::Key
    }

    /// Whether more keys passed the filters than the limit lets through.
    pub(super) fn more(&self) -> bool {
        self.taken > self.limit
    }

    /// Takes one version. Breaks when no further one is wanted.
    pub(super) fn push(&mut self, version: &VersionRef<'_>) -> ControlFlow<()> {
        if self.is_full() {
            return ControlFlow::Break(());
        }
        if !self.filters.pass(version) {
            return ControlFlow::Continue(());
        }
        self.taken += 1;
        match &mut self.kept {
            // The one behind the limit only tells that there is more.
            Kept::InKeyOrder(kvs) if self.taken <= self.limit => {
                let mut kv = version.to_kv(self.values);
                if self.hides_lease {
                    kv.lease = 0;
                }
                kvs.push(kv);
            }
            Kept::InKeyOrder(_) => (),
            Kept::Sorted(sorted) => {
                let rank = rank(self.order, version);
                sorted.insert((rank, self.taken), version.to_kv(self.values));
                // A range that is cut in key order keeps one too many until it is sorted.
                let room = if self.stops_early { self.limit.saturating_add(1) } else { self.limit };
                if sorted.len() > room {
                    sorted.pop_last();
                }
            }
        }
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Gives what may leave now, `count_max` at most. Sorted ranges give only after the walk.
    pub(super) fn take(&mut self, count_max: usize) -> Vec<KeyValue> {
        match &mut self.kept {
            Kept::InKeyOrder(kvs) if kvs.len() <= count_max => std::mem::take(kvs),
            Kept::InKeyOrder(kvs) => kvs.drain(..count_max).collect(),
            Kept::Sorted(sorted) => {
                while sorted.len() > self.limit - self.given {
                    sorted.pop_last();
                }
                let first = std::iter::from_fn(|| sorted.pop_first().map(|(_, kv)| kv));
                let mut kvs: Vec<KeyValue> = first.take(count_max).collect();
                self.given += kvs.len();
                kvs.iter_mut().for_each(|kv| self.hide(kv));
                kvs
            }
        }
    }

    /// Whether everything kept has left.
    pub(super) fn is_drained(&self) -> bool {
        match &self.kept {
            Kept::InKeyOrder(kvs) => kvs.is_empty(),
            Kept::Sorted(sorted) => sorted.is_empty(),
        }
    }

    fn hide(&self, kv: &mut KeyValue) {
        if self.keys_only {
            kv.value = Bytes::new();
        }
        if self.hides_lease {
            kv.lease = 0;
        }
    }
}

fn rank(order: Order, version: &VersionRef<'_>) -> Rank {
    let (target, falling) = match order {
        Order::Key => (SortTarget::Key, false),
        Order::By { target, falling } => (target, falling),
    };
    let number = match target {
        SortTarget::Version => version.version,
        SortTarget::Create => version.create.0,
        SortTarget::Mod => version.mod_.0,
        SortTarget::Key | SortTarget::Value => {
            let bytes = if target == SortTarget::Key { version.key } else { version.value };
            return if falling {
                Rank::FallingBytes(Reverse(bytes.clone()))
            } else {
                Rank::RisingBytes(bytes.clone())
            };
        }
    };
    if falling { Rank::Falling(Reverse(number)) } else { Rank::Rising(number) }
}
