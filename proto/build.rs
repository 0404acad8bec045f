//! Compiles the `.proto` texts to prost types, and to the table of `schema.rs`. No protoc is
//! needed: protox does it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Protobuf package and our module for it.
const MODULES: [(&str, &str); 7] = [
    ("authpb", "authpb"),
    ("etcdserverpb", "etcdserverpb"),
    ("grpc.health.v1", "health"),
    ("leasepb", "leasepb"),
    ("mvccpb", "mvccpb"),
    ("v3electionpb", "v3electionpb"),
    ("v3lockpb", "v3lockpb"),
];

/// `FieldDescriptorProto.label` of a repeated field.
const REPEATED: i32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = [
        "kv.proto",
        "auth.proto",
        "rpc.proto",
        "lock.proto",
        "election.proto",
        "lease.proto",
        "health.proto",
    ];
    let descriptors = protox::compile(files, ["proto"])?;
    let mut tables = Tables::default();
    for file in &descriptors.file {
        for message in &file.message_type {
            let fields = message.field.iter().map(|field| {
                let repeated = field.label == Some(REPEATED);
                (field.number(), field.r#type.unwrap_or_default(), repeated, field.type_name())
            });
            tables.message(file.package(), message.name(), fields.collect());
            assert!(
                message.nested_type.iter().all(|nested| nested.options.is_some()),
                "{}: only entries of maps are nested messages",
                message.name()
            );
            for entry in &message.nested_type {
                let name = format!("{}.{}", message.name(), entry.name());
                let fields = entry.field.iter().map(|field| {
                    (field.number(), field.r#type.unwrap_or_default(), false, field.type_name())
                });
                tables.message(file.package(), &name, fields.collect());
            }
        }
    }
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("schema.rs"), tables.text)?;
    prost_build::Config::new().bytes(["."]).btree_map(["."]).compile_fds(descriptors)?;
    Ok(())
}

/// Number, type, whether it is repeated, and the full name of its message.
type Field<'a> = (i32, i32, bool, &'a str);

#[derive(Default)]
struct Tables {
    text: String,
}

impl Tables {
    fn message(&mut self, package: &str, name: &str, fields: Vec<Field<'_>>) {
        let constant = constant(&format!(".{package}.{name}"));
        let by_number: BTreeMap<i32, String> =
            fields.iter().map(|field| (field.0, kind(field))).collect();
        let mut fields = String::new();
        for (number, kind) in by_number {
            write!(fields, "Field {{ number: {number}, kind: {kind} }}, ").expect("a string");
        }
        let text = &mut self.text;
        writeln!(text, "static {constant}: Schema = Schema {{ fields: &[{fields}] }};")
            .expect("a string");
        if !name.contains('.') {
            let module = MODULES.iter().find(|(known, _)| *known == package);
            let module = module.unwrap_or_else(|| panic!("no module for {package}")).1;
            let path = format!("crate::{module}::{}", camel(name));
            writeln!(text, "impl Described for {path} {{").expect("a string");
            writeln!(text, "    const SCHEMA: &'static Schema = &{constant};\n}}")
                .expect("a string");
        }
    }
}

/// How a field is on the wire. The numbers are those of `FieldDescriptorProto.type`.
fn kind((_, kind, repeated, message): &Field<'_>) -> String {
    match kind {
        3 | 4 | 5 | 8 | 13 | 14 | 17 | 18 if *repeated => "Kind::Numbers".to_owned(),
        3 | 4 | 5 | 8 | 13 | 14 | 17 | 18 => "Kind::Number".to_owned(),
        9 => "Kind::Text".to_owned(),
        12 => "Kind::Bytes".to_owned(),
        11 => format!("Kind::Message(&{})", constant(message)),
        other => panic!("fields of type {other} are not in the contract"),
    }
}

/// The name of a message's table.
fn constant(full_name: &str) -> String {
    full_name[1..].replace('.', "_").to_uppercase()
}

/// A message's name as prost spells it: `HashKVRequest` is `HashKvRequest`.
fn camel(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let upper = |at: usize| characters.get(at).is_some_and(|c| c.is_uppercase());
    let spelled = characters.iter().enumerate().map(|(at, character)| {
        let begins_word =
            at == 0 || !upper(at - 1) || (at + 1 < characters.len() && !upper(at + 1));
        if upper(at) && begins_word { *character } else { character.to_ascii_lowercase() }
    });
    spelled.collect()
}
