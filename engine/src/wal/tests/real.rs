//! The log on a real file system, under each real driver.

use ringbolt_io::Executor;
use ringbolt_io::select::{Engine, driver};

use super::{IDENTITY, entries, hard_state};
use crate::types::{RaftIndex, Revision};
use crate::wal::{Batch, Mode, OpenError, Ticket, WalConfig, Writer};

/// Append, wait, die; append, close; open. Proves that the simulated disk and the real one agree
/// about what the log asks of them: direct I/O, locks, names, sizes.
#[test]
fn survives_on_a_real_disk() {
    for mode in [Mode::Safe, Mode::NoFsync] {
        let directory = std::env::temp_dir().join(format!("ringbolt-wal-{mode:?}"));
        let _ = std::fs::remove_dir_all(&directory);
        let config = WalConfig { segment_bytes_first: 4 << 20, ..WalConfig::new(mode) };
        let (home, first) = (directory.clone(), config.clone());
        run(move |io| async move {
            let created = Writer::create(&io, &home, IDENTITY, first).await;
            let (writer, recovered) = created.expect("a log can be made here");
            assert!(recovered.entries.is_empty());
            let state = Some(hard_state(1, 7, 2));
            let ticket = writer.append(Batch { hard_state: state, ..entries(1..=3) });
            assert_eq!(ticket, Ticket(1));
            writer.wait_durable(ticket).await.expect("a healthy disk");
            let busy = Writer::open(&io, &home, WalConfig::new(Mode::Safe));
            let busy = io.timeout(std::time::Duration::from_millis(200), busy).await;
            assert!(busy.is_none(), "the lock is held, and waited for");
        });
        let (home, second) = (directory.clone(), config.clone());
        run(move |io| async move {
            let opened = Writer::open(&io, &home, second).await;
            let (writer, recovered) = opened.expect("the log is sound");
            assert_eq!(recovered.entries, entries(1..=3).entries);
            assert_eq!(recovered.hard_state, hard_state(1, 7, 2));
            assert!(!recovered.clean && !recovered.may_have_lost());
            writer.reserve_revisions(Revision(10)).await.expect("a healthy disk");
            for index in 4..=50 {
                writer.append(entries(index..=index));
            }
            writer.close().await.expect("a healthy disk");
        });
        let home = directory.clone();
        run(move |io| async move {
            let missing = Writer::open(&io, &home.join("none"), config.clone()).await;
            assert!(matches!(missing, Err(OpenError::Missing(_))));
            let (writer, recovered) = Writer::open(&io, &home, config).await.expect("sound");
            assert!(recovered.clean);
            assert_eq!(recovered.entries, entries(1..=50).entries);
            assert_eq!(recovered.revision_ceiling, Revision(1 << 20));
            assert_eq!(writer.gauges().oldest_index, RaftIndex(1));
            writer.close().await.expect("a healthy disk");
        });
        std::fs::remove_dir_all(&directory).expect("it is ours");
    }
}

fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(ringbolt_io::Io) -> F) {
    let (driver, _) = driver(Engine::Epoll, 1).expect("epoll is everywhere");
    let executor = Executor::new(driver);
    executor.run(main(executor.io()));
}
