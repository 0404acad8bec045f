//! What each message's fields are on the wire: a table made of the `.proto` texts.
//!
//! prost's types do not show it, and [`crate::wire`] must know it before prost decodes.

/// The fields of a message.
#[derive(Debug)]
pub struct Schema {
    /// In order of their numbers.
    pub fields: &'static [Field],
}

/// One field.
#[derive(Debug)]
pub struct Field {
    /// Its number.
    pub number: u32,
    /// What it holds.
    pub kind: Kind,
}

/// How a field is on the wire.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A varint.
    Number,
    /// Varints, one by one or packed.
    Numbers,
    /// Any bytes.
    Bytes,
    /// UTF-8.
    Text,
    /// A message.
    Message(&'static Schema),
}

/// A message whose fields are known here.
pub trait Described {
    /// They.
    const SCHEMA: &'static Schema;
}

impl Schema {
    /// What a field holds; `None` when nobody knows it.
    #[must_use]
    pub fn kind_of(&self, number: u64) -> Option<Kind> {
        let field = self.fields.iter().find(|field| u64::from(field.number) == number);
        field.map(|field| field.kind)
    }
}

include!(concat!(env!("OUT_DIR"), "/schema.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    /// A transaction's operations are messages that hold a transaction.
    #[test]
    fn txn_holds_itself() {
        let txn = crate::etcdserverpb::TxnRequest::SCHEMA;
        let Some(Kind::Message(op)) = txn.kind_of(2) else { panic!("{txn:?}") };
        let Some(Kind::Message(nested)) = op.kind_of(4) else { panic!("{op:?}") };
        assert!(std::ptr::eq(txn, nested));
    }

    /// Scalars, lists of numbers, and a name that prost spells otherwise.
    #[test]
    fn kinds() {
        let watch = crate::etcdserverpb::WatchCreateRequest::SCHEMA;
        assert!(matches!(watch.kind_of(1), Some(Kind::Bytes)));
        assert!(matches!(watch.kind_of(3), Some(Kind::Number)));
        assert!(matches!(watch.kind_of(5), Some(Kind::Numbers)));
        assert!(watch.kind_of(99).is_none());
        let hash = crate::etcdserverpb::HashKvRequest::SCHEMA;
        assert!(matches!(hash.kind_of(1), Some(Kind::Number)));
        let member = crate::etcdserverpb::MemberAddRequest::SCHEMA;
        assert!(matches!(member.kind_of(1), Some(Kind::Text)));
    }
}
