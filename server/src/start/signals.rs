//! SIGTERM and SIGINT, systemd, and death by a signal.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::Sender;

use ringbolt_io::{plain, process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::Report;
use crate::log;

/// Go's word for a signal.
#[must_use]
pub fn word(signal: i32) -> &'static str {
    if signal == SIGINT { "interrupt" } else { "terminated" }
}

/// Reports the first signal; a second one ends the process at once.
///
/// # Errors
/// The system's.
pub fn watch(reports: Sender<Report>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let wait = move || {
        let mut arrived = signals.forever();
        if let Some(signal) = arrived.next() {
            let _nobody_listens_at_the_end = reports.send(Report::Signal(signal));
        }
        if let Some(signal) = arrived.next() {
            let _we_end_either_way = emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(|_| ())
}

/// Ends the process as the signal would have, so that a parent sees it. Process 1 cannot die of a
/// signal it does not handle: it exits, which is why this may return.
pub fn die(signal: i32) {
    if !process::is_first() {
        let _we_exit_otherwise = emulate_default_handler(signal);
    }
}

/// Tells the init daemon that clients can come.
pub fn ready() {
    log::info("notifying init daemon", vec![]);
    match notify(b"READY=1\n") {
        Ok(()) => log::info("successfully notified init daemon", vec![]),
        Err(error) => {
            let fields = vec![("error", plain(&error).into())];
            log::error("failed to notify systemd for readiness", fields);
        }
    }
}

/// Tells the init daemon that the end has begun.
pub fn stopping() {
    let _it_sees_the_end_anyway = notify(b"STOPPING=1\n");
}

/// Sends to the socket that `NOTIFY_SOCKET` names, if any: a path, or behind `@` an abstract name.
fn notify(state: &[u8]) -> std::io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    UnixDatagram::unbound()?.send_to_addr(state, &address(&name)?).map(|_| ())
}

fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(hidden) => SocketAddr::from_abstract_name(hidden),
        None => SocketAddr::from_pathname(name),
    }
}
