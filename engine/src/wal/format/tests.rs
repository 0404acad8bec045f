//! The bytes of a batch, as drawn and for ever.

use bytes::Bytes;
use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header {
        log_id: 0x11,
        sequence: 0x12,
        epoch: 0x13,
        salt: 0x14,
        segment_sequence: 0x15,
        chain: 0x16,
        watermark: 0x17,
        hard_state: HardState { term: Term(0x18), vote: 0x19, commit: RaftIndex(0x1a) },
    }
}

fn records() -> Vec<Record> {
    let start = Start { previous: 0x21, salt: 0x22, sequence: 0x23, chain: 0x24 };
    let (index, term) = (RaftIndex(0x25), Term(0x26));
    let entry = Entry { index, term, kind: 0x27, data: Bytes::from_static(b"data") };
    let file = "37.checkpoint".to_owned();
    let checkpoint = Checkpoint { index, term, root: 0x28, file };
    vec![Record::Start(start), Record::Entry(entry), Record::Checkpoint(checkpoint)]
}

fn batch(header: &Header, records: &[Record]) -> (Vec<u8>, u64) {
    let body: usize = records.iter().map(Record::size).sum();
    let mut bytes = vec![0xff; batch_size(body)];
    let chain = encode(header, records, &mut bytes);
    (bytes, chain)
}

/// Every byte where the drawing says.
#[test]
fn golden() {
    let (bytes, chain) = batch(&header(), &records());
    let mut drawn = b"RBWB\x01\x00\x03\x00".to_vec();
    drawn.extend_from_slice(&[0x62, 0x39, 0x1d, 0x05]);
    drawn.extend_from_slice(&[0x82, 0x41, 0x4f, 0xc2]);
    for number in 0x11..=0x1au64 {
        drawn.extend_from_slice(&number.to_le_bytes());
    }
    drawn.extend_from_slice(&(40u32 + 28 + 45).to_le_bytes());
    drawn.resize(HEADER_BYTES, 0);
    drawn.extend_from_slice(&[3, 0, 0, 0, 32, 0, 0, 0]);
    for number in 0x21..=0x24u64 {
        drawn.extend_from_slice(&number.to_le_bytes());
    }
    drawn.extend_from_slice(&[1, 0x27, 0, 0, 20, 0, 0, 0]);
    drawn.extend_from_slice(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0x26, 0, 0, 0, 0, 0, 0, 0]);
    drawn.extend_from_slice(b"data");
    drawn.extend_from_slice(&[2, 0, 0, 0, 37, 0, 0, 0]);
    drawn.extend_from_slice(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0x26, 0, 0, 0, 0, 0, 0, 0]);
    drawn.extend_from_slice(&[0x28, 0, 0, 0, 0, 0, 0, 0]);
    drawn.extend_from_slice(b"37.checkpoint");
    drawn.resize(BLOCK_BYTES, 0);
    assert_eq!(bytes, drawn);
    assert_eq!(chain, 0x051d_3962_c24f_4182, "header's checksum, then the body's");
}

/// A flipped bit anywhere, padding included, is noticed.
#[test]
fn every_bit_counts() {
    let (bytes, chain) = batch(&header(), &records());
    let read = decode(&bytes).expect("whole");
    assert_eq!((read.header, read.chain, read.records), (header(), chain, records()));
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let seen = peek(&bad).and_then(|_| decode(&bad));
        assert!(seen.is_err(), "byte {at}");
    }
}

/// A batch of another version is whole, told apart from rot, and not read.
#[test]
fn another_version_is_not_rot() {
    let (mut bytes, _) = batch(&header(), &records());
    bytes[4] = 2;
    seal(&mut bytes);
    assert_eq!(peek(&bytes).map(|seen| seen.version), Ok(2));
    assert_eq!(decode(&bytes), Err(Bad("format version 2".into())));
}

/// Lengths and kinds that do not fit are told, never followed, though the checksums hold.
#[test]
fn foreign_lengths_are_not_followed() {
    for (at, byte) in [(128, 9), (132, 200), (6, 9), (6, 1), (132, 1), (96, 20)] {
        let (mut bytes, _) = batch(&header(), &records());
        bytes[at] = byte;
        seal(&mut bytes);
        assert!(decode(&bytes).is_err(), "byte {at} = {byte}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written is read.
    #[test]
    fn round_trip(
        numbers in proptest::array::uniform10(0..=COUNTER_MAX),
        entries in vec_of(
            (0..=COUNTER_MAX, 0..=COUNTER_MAX, any::<u8>(), vec_of(any::<u8>(), 0..900)),
            0..20,
        ),
    ) {
        let [log_id, sequence, epoch, salt, segment_sequence, chain, watermark, ..] = numbers;
        let [.., term, vote, commit] = numbers;
        let hard_state = HardState { term: Term(term), vote, commit: RaftIndex(commit) };
        let header = Header {
            log_id,
            sequence,
            epoch,
            salt,
            segment_sequence,
            chain,
            watermark,
            hard_state,
        };
        let records: Vec<Record> = entries.into_iter().map(|(index, term, kind, data)| {
            let (index, term) = (RaftIndex(index), Term(term));
            Record::Entry(Entry { index, term, kind, data: Bytes::from(data) })
        }).collect();
        let (bytes, chain) = batch(&header, &records);
        prop_assert_eq!(peek(&bytes).map(|seen| seen.size), Ok(bytes.len()));
        let read = decode(&bytes);
        prop_assert_eq!(read, Ok(Decoded { header, chain, size: bytes.len(), records }));
    }
}

/// Whatever its checksums say, nothing counts to where one more is too many: a sequence, an index
/// or a term at the end of its numbers ended the start in an overflow.
#[test]
fn a_counter_at_its_end_is_no_batch() {
    let far = COUNTER_MAX + 1;
    let state = header().hard_state;
    for header in [
        Header { sequence: far, ..header() },
        Header { epoch: u64::MAX, ..header() },
        Header { watermark: far, ..header() },
        Header { hard_state: HardState { term: Term(far), ..state }, ..header() },
        Header { hard_state: HardState { commit: RaftIndex(u64::MAX), ..state }, ..header() },
    ] {
        let (bytes, _) = batch(&header, &records());
        let bad = peek(&bytes).expect_err("it counts too far");
        assert!(bad.0.starts_with("a counter of "), "{bad:?}");
    }
    for (index, term) in [(far, 1), (1, far)] {
        let (index, term) = (RaftIndex(index), Term(term));
        let entry = Entry { index, term, kind: 0, data: Bytes::new() };
        let (bytes, _) = batch(&header(), &[Record::Entry(entry)]);
        let bad = decode(&bytes).expect_err("it counts too far");
        assert!(bad.0.starts_with("a counter of "), "{bad:?}");
    }
}
