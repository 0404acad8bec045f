//! Compiles the `.proto` texts to prost types. No protoc is needed: protox does it.
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
    prost_build::Config::new().bytes(["."]).btree_map(["."]).compile_fds(descriptors)?;
    Ok(())
}
