//! Transactions in each other against a whole member: 49 others were `Internal`, and without
//! prost's limit a deeper one would have ended the process by its stack. The tests' threads have a
//! stack as small as that of a shard, and the largest frames there are.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use prost::Message;
use ringbolt_io::sim::{SimConfig, World};
use ringbolt_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest, request_op::Request};

use super::PORT;
use super::client::Client;
use super::golden::member;

const TOO_MANY: &str = "etcdserver: too many operations in txn request";

/// A put in a transaction that lies in `others`, as bytes.
fn nested(others: usize) -> Vec<u8> {
    let put = PutRequest { key: "k".into(), value: "v".into(), ..PutRequest::default() };
    let op = RequestOp { request: Some(Request::RequestPut(put)) };
    let mut bytes = TxnRequest { success: vec![op], ..TxnRequest::default() }.encode_to_vec();
    for tag in [0x22, 0x12].repeat(others) {
        let mut outer = vec![tag];
        prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
        outer.append(&mut bytes);
        bytes = outer;
    }
    bytes
}

/// Sends a transaction in each of so many others and looks at status and text.
fn ask(max_txn_ops: usize, cases: &'static [(usize, &'static str, &'static str)]) {
    let mut world = World::new(3, SimConfig::default());
    let (server, client) = (world.add_machine(), world.add_machine());
    world.make_dir(server, "/data".as_ref());
    let address = world.address(server, PORT);
    let here = address.clone();
    world.start(server, |io| {
        io.spawn("member", member(io.clone(), here, max_txn_ops));
    });
    world.run_for(Duration::from_secs(5));
    let done = Rc::new(Cell::new(false));
    let finished = done.clone();
    world.start(client, |io| {
        let inner = io.clone();
        io.spawn("client", async move {
            let stream = inner.connect(&address).await.expect("a server");
            let mut client = Client::new(inner, stream).hello();
            for (index, (others, code, text)) in cases.iter().enumerate() {
                let stream = 2 * u32::try_from(index).expect("few") + 1;
                client.call(stream, "KV/Txn", &[]);
                client.message(stream, &nested(*others), true);
                let answer = client.answer(stream).await;
                let (status, message) = answer.status();
                assert_eq!(status, *code, "{others}: {message}");
                assert!(message.ends_with(text), "{others}: {message}");
            }
            finished.set(true);
        });
    });
    assert!(world.run_until(Duration::from_secs(600), |_| done.get()), "not answered");
}

/// As etcd answers by default.
#[test]
fn deep_transactions() {
    ask(
        128,
        &[
            (48, "0", ""),
            (49, "0", ""),
            (127, "0", ""),
            (128, "3", TOO_MANY),
            (4998, "3", TOO_MANY),
            (4999, "13", "exceeded maximum recursion depth"),
            (5000, "13", "exceeded maximum recursion depth"),
            (9000, "13", "exceeded maximum recursion depth"),
        ],
    );
}

/// With a larger limit on operations the levels have a limit of their own.
#[test]
fn deep_transactions_of_many_operations() {
    ask(1_000_000, &[(255, "0", ""), (256, "3", TOO_MANY), (4998, "3", TOO_MANY)]);
}
