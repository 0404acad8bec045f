//! The driver a simulated shard sees.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::{ShardRef, Shared};
use crate::driver::{Done, Driver, HandleId, Op, RemoteWaker, Token};
use crate::net::{Address, ListenHow};
use crate::time::{MonoTime, WallTime};

/// One shard's door to the simulated world. It outlives a crash as a door to nowhere: what a dying
/// process still does while its tasks are dropped reaches nobody.
pub(super) struct SimDriver {
    pub(super) core: Shared,
    pub(super) shard: ShardRef,
}

impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn submit(&self, token: Token, op: Op) {
        self.core.borrow_mut().submit(self.shard, token, op);
    }

    fn cancel(&self, token: Token) {
        let mut core = self.core.borrow_mut();
        if core.is_current(self.shard) {
            core.cancel(self.shard, token);
        }
    }

    /// Never waits: the world moves time and calls the shard when there is something for it.
    fn park(&self, _until: Option<MonoTime>, done: &mut Vec<(Token, Done)>) {
        if let Some(port) = self.core.borrow_mut().port(self.shard) {
            port.collect(done);
        }
    }

    fn close(&self, handle: HandleId) {
        let mut core = self.core.borrow_mut();
        if !core.is_current(self.shard) {
            return;
        }
        let files = &mut core.machines[self.shard.machine].files;
        if files.is_open(handle) {
            files.close(handle);
        } else {
            core.close_socket(handle);
        }
    }

    fn shutdown(&self, stream: HandleId) {
        let mut core = self.core.borrow_mut();
        if core.is_current(self.shard) {
            core.shutdown(stream);
        }
    }

    fn listen(&self, address: &Address, _how: &ListenHow) -> io::Result<(HandleId, Address)> {
        let mut core = self.core.borrow_mut();
        if !core.is_current(self.shard) {
            return Err(io::ErrorKind::Other.into());
        }
        core.listen(self.shard, address)
    }

    fn now(&self) -> MonoTime {
        let core = self.core.borrow();
        core.machines[self.shard.machine].clock.mono(core.now)
    }

    fn wall(&self) -> WallTime {
        let core = self.core.borrow();
        core.machines[self.shard.machine].clock.wall(core.now)
    }

    fn random_u64(&self) -> u64 {
        self.core.borrow_mut().port(self.shard).map_or(0, |port| port.rng.next_u64())
    }

    fn waker(&self) -> RemoteWaker {
        let mut core = self.core.borrow_mut();
        let Some(port) = core.port(self.shard) else { return Arc::new(|| ()) };
        let woken = port.woken.clone();
        Arc::new(move || woken.store(true, Ordering::Relaxed))
    }
}
