//! Requests of HTTP/1.1, one connection's bytes.
//!
//! - T1 A request takes as many bytes as there are, and those alone: cut there, it is the same.
//! - T2 Fewer bytes are no other request: they are incomplete or refused. Two readers that see a
//!   border at different places are what smuggling needs.

use ringbolt_server::http1::parse::{Progress, Request, parse};

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut rest = input;
    while let Progress::Whole(request, size) = parse(rest) {
        assert!(0 < size && size <= rest.len(), "T1: {size} of {}", rest.len());
        assert_eq!(parse(&rest[..size]), Progress::Whole(request.clone(), size), "T1");
        for less in [size - 1, size / 2, size / 3] {
            let fewer = parse(&rest[..less]);
            assert!(!matches!(fewer, Progress::Whole(..)), "T2: {fewer:?} of {request:?}");
        }
        look(&request);
        rest = &rest[size..];
    }
}

fn look(request: &Request) {
    assert!(request.raw_path().len() <= request.target.len());
    let pairs = request.query().count();
    assert!(pairs <= request.target.len());
    assert!(request.fields.iter().all(|(name, _)| !name.is_empty()), "{:?}", request.fields);
}

/// Requests as clients send them, and two that want to be read twice.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "GET /health?serializable=true&exclude=NOSPACE HTTP/1.1\r\nHost: a:2379\r\n\r\n",
        "POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: 22\r\nContent-Type: \
         application/json\r\n\r\n{\"key\":\"Zg\",\"value\":1}",
        "POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\
         3;x=y\r\n...\r\n0\r\nTrailer: t\r\n\r\nGET /version HTTP/1.0\r\nConnection: \
         keep-alive\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "\r\n\nHEAD /livez HTTP/1.1\nHost: a\nExpect: 100-continue\nConnection: close\n\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Names that change how a request is read.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let words = [
        "\r\n\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "Host: ",
        "Connection: ",
        "Expect: 100-continue\r\n",
        " HTTP/1.1\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "%00",
    ];
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
