pub mod skein;
