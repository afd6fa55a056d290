// Package floors is the architecture as a test. It holds no code that runs
// anywhere else.
//
// The house has a ground floor, which is the root package and knows only the
// standard library; a first floor of stores, which know only the ground; a
// second floor of doors to the world, each beside the one library it opens to (or
// the one database that it keeps claims in);
// and a roof of programs, which may use everything below. Imports point down,
// and neighbours meet only in tests. ARCHITECTURE.md draws it and says why.
//
// Each rule carries its reason, which a failing test prints, and samples of a
// tree that breaks it, so that a rule that no longer notices anything fails too.
package floors
