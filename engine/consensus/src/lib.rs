//! Consensus behind one function: `Node::step(inputs) -> Effects`. No disk, clock or socket.
