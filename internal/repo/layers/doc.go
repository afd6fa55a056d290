// Package layers tests the architecture. It contains no code that runs elsewhere.
//
// The repository has four layers, and imports go down only:
//
//  1. package driver, the contract, which imports the standard library only;
//  2. the root package and the stores, which import driver, and not each other;
//  3. adapters and stores with a module of their own, which import one external library
//     each;
//  4. programs, which may import everything.
//
// Packages of one layer import each other in tests only. ARCHITECTURE.md explains why.
//
// Each rule states its reason, which a failing test prints. Each rule has samples of
// files that break it, so that a rule that detects nothing fails as well.
package layers
