#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::snapshot`.

bellwire_fuzz::target!(bellwire_fuzz::snapshot::run);
