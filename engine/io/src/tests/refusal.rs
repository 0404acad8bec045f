//! Where io_uring is refused: a seccomp filter on the test's own thread answers for the kernel.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::{Directory, SEED};
use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, OpenHow};
use crate::exec::Executor;
use crate::net::{Address, ListenHow};
use crate::select::{self, Engine};

/// Makes `io_uring_setup` of the calling thread, and of threads it starts, fail with `error`.
fn refuse_io_uring(error: u16) {
    let step = |code: u32, jump: (u8, u8), k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jump.0,
        jf: jump.1,
        k,
    };
    let number = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    // The call's number is the first field of seccomp_data.
    let program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), number),
        step(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ERRNO | u32::from(error)),
        step(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `filter` and the program it points to live until both calls have returned; the
    // kernel copies them.
    // JUSTIFICATION: no safe crate of ours installs seccomp filters.
    let codes = unsafe {
        let privileges = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1u64, 0u64, 0u64, 0u64);
        let mode = u64::from(libc::SECCOMP_MODE_FILTER);
        (privileges, libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter))
    };
    assert_eq!(codes, (0, 0), "{}", std::io::Error::last_os_error());
}

fn refused_thread(error: i32, test: fn()) {
    let error = u16::try_from(error).unwrap();
    let thread = std::thread::spawn(move || {
        refuse_io_uring(error);
        test();
    });
    thread.join().expect("the test passes");
}

/// `auto` falls back to epoll, says why, and everything works: files, bulk, sockets, timers.
#[test]
fn auto_falls_back_to_a_working_epoll() {
    refused_thread(libc::EPERM, || {
        let (driver, why) = select::driver(Engine::Auto, SEED).unwrap();
        assert_eq!(driver.name(), "epoll");
        assert!(why.starts_with("epoll, because io_uring is refused"), "{why}");
        assert!(why.contains("seccomp") && why.contains("EPERM"), "{why}");
        let directory = Directory::new();
        let path = Rc::new(directory.path().to_path_buf());
        let executor = Executor::new(driver);
        let io = executor.io();
        executor.run(async move {
            let how = OpenHow { create: true, ..OpenHow::LOG };
            let file = io.disk().open(&path.join("log"), how).await.unwrap();
            file.write_at(AlignedBuffer::zeroed(4096), 0, Durability::Disk).await.0.unwrap();
            crate::bulk::zero_file(&io, &path.join("zeros"), 1 << 20).await.unwrap();
            let address = Address::Unix(path.join("s"));
            let listener = io.listen(&address, &ListenHow::default()).unwrap();
            let client = io.connect(&address).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            server.write(vec![Bytes::from_static(b"here")]).await.unwrap();
            assert_eq!(client.read(Vec::new()).await.1, b"here");
            io.sleep(Duration::from_millis(1)).await;
        });
    });
}

/// `uring` is a hard error there, which names the cause and the remedy.
#[test]
fn uring_names_cause_and_remedy() {
    for error in [libc::EPERM, libc::ENOSYS] {
        refused_thread(error, || {
            let error = select::driver(Engine::Uring, SEED).err().unwrap().to_string();
            for part in ["io_uring is refused", "seccomp", "io_uring_setup", "--io-engine=epoll"] {
                assert!(error.contains(part), "{error}");
            }
        });
    }
    refused_thread(libc::EINVAL, || {
        let error = select::driver(Engine::Uring, SEED).err().unwrap().to_string();
        assert!(error.contains("too old") && error.contains("Linux 6.1"), "{error}");
        assert_eq!(select::driver(Engine::Auto, SEED).unwrap().0.name(), "epoll");
    });
}
