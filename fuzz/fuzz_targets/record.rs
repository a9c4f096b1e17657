#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::record`.

bellwire_fuzz::target!(bellwire_fuzz::record::run);
