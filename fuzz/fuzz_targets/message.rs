#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::message`.

bellwire_fuzz::target!(bellwire_fuzz::message::run);
