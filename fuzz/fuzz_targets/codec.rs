#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::codec`.

bellwire_fuzz::target!(bellwire_fuzz::codec::run);
