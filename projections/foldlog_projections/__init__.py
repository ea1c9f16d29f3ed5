"""The folds: pure functions from entries to what people, programs and models see."""
