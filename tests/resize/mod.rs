mod control_socket;
mod death;
mod exactness;
mod full_lanes;
mod hall;
mod hostile_attachment;
mod hostile_switch;
mod learned;
mod limits;
mod memory;
mod pair;
mod payload;
mod shortage;
mod shrink;

pub(crate) use exactness::serve as serve_exactly;
