//! Pings: how often a client may send them, and ours to a silent client.
//!
//! Source: etcd 0.12 and 0.13 of the contract. A ping that comes too early is a strike; whatever
//! payload or headers we send forgives all strikes, because clients measure bandwidth with pings
//! after data.

use std::time::Duration;

use ringbolt_io::MonoTime;

use super::Limits;
use crate::limits::{PING_INTERVAL_WITHOUT_STREAM_MIN, PING_STRIKES_MAX};

#[derive(Debug)]
pub(super) struct Keepalive {
    interval: Duration,
    timeout: Duration,
    ping_interval_min: Duration,
    last_ping: Option<MonoTime>,
    strikes: u32,
    forgiven: bool,
    last_received: MonoTime,
    asked: Option<MonoTime>,
}

/// What to do now about a silent client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ping,
    GiveUp,
}

impl Keepalive {
    pub(super) fn new(limits: &Limits, now: MonoTime) -> Keepalive {
        Keepalive {
            interval: limits.keepalive_interval,
            timeout: limits.keepalive_timeout,
            ping_interval_min: limits.ping_interval_min,
            last_ping: None,
            strikes: 0,
            forgiven: false,
            last_received: now,
            asked: None,
        }
    }

    /// Headers or payload were sent.
    pub(super) fn sent_payload(&mut self) {
        self.forgiven = true;
    }

    /// Bytes were received.
    pub(super) fn received(&mut self, now: MonoTime) {
        self.last_received = now;
        self.asked = None;
    }

    /// A ping came. False: one strike too many.
    pub(super) fn pinged(&mut self, now: MonoTime, streams_open: bool) -> bool {
        let last = self.last_ping.replace(now);
        if std::mem::take(&mut self.forgiven) {
            self.strikes = 0;
            return true;
        }
        let least =
            if streams_open { self.ping_interval_min } else { PING_INTERVAL_WITHOUT_STREAM_MIN };
        if last.is_some_and(|last| last + least > now) {
            self.strikes += 1;
        }
        self.strikes <= PING_STRIKES_MAX
    }

    /// When [`Keepalive::due`] should be asked next.
    pub(super) fn next(&self) -> MonoTime {
        match self.asked {
            Some(asked) => asked + self.timeout,
            None => self.last_received + self.interval,
        }
    }

    /// Looks at the silence; after `Ping` the answer is awaited.
    pub(super) fn due(&mut self, now: MonoTime) -> Due {
        if now < self.next() {
            return Due::Nothing;
        }
        if self.asked.is_some() {
            return Due::GiveUp;
        }
        self.asked = Some(now);
        Due::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The third early ping ends it; a ping every five seconds with a stream open never does.
    #[test]
    fn third_strike() {
        let start = MonoTime(0);
        let mut keepalive = Keepalive::new(&Limits::default(), start);
        for second in 0..3 {
            assert!(keepalive.pinged(start + SECOND * second, true), "ping {second}");
        }
        assert!(!keepalive.pinged(start + SECOND * 3, true));
        let mut keepalive = Keepalive::new(&Limits::default(), start);
        for count in 0..100 {
            assert!(keepalive.pinged(start + SECOND * 5 * count, true));
        }
    }

    /// Without streams even a slow ping is a strike, and sending anything forgives.
    #[test]
    fn strikes_without_streams_and_forgiveness() {
        let start = MonoTime(0);
        let mut keepalive = Keepalive::new(&Limits::default(), start);
        for count in 0..3 {
            assert!(keepalive.pinged(start + SECOND * 30 * count, false));
        }
        keepalive.sent_payload();
        for count in 3..6 {
            assert!(keepalive.pinged(start + SECOND * 30 * count, false));
        }
        assert!(!keepalive.pinged(start + SECOND * 180, false));
    }

    /// A silent client is asked once and then given up; any byte is an answer.
    #[test]
    fn silence() {
        let start = MonoTime(0);
        let limits = Limits::default();
        let mut keepalive = Keepalive::new(&limits, start);
        let asked = start + limits.keepalive_interval;
        assert_eq!(keepalive.due(start), Due::Nothing);
        assert_eq!(keepalive.due(asked), Due::Ping);
        assert_eq!(keepalive.due(asked + SECOND), Due::Nothing);
        keepalive.received(asked + SECOND);
        assert_eq!(keepalive.due(asked + SECOND * 60), Due::Nothing);
        let again = asked + SECOND + limits.keepalive_interval;
        assert_eq!(keepalive.due(again), Due::Ping);
        assert_eq!(keepalive.due(again + limits.keepalive_timeout), Due::GiveUp);
    }
}
