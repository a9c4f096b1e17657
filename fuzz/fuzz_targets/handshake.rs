#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::handshake`.

bellwire_fuzz::target!(bellwire_fuzz::handshake::run);
