// Package layers tests the architecture. It contains no code that runs elsewhere.
//
// The repository has four layers, and imports go down only:
//
//  1. package driver, the contract, which imports the standard library only;
//  2. the root package and the stores, which import driver, and not each other;
//  3. adapters and stores in separate modules, each of which imports a single external
//     library;
//  4. programs, which can import everything.
//
// Packages in the same layer import each other in tests only. ARCHITECTURE.md explains why.
//
// Each rule states its reason, which a failing test prints. Each rule lists sample files
// that break it, so a rule without any effect should fail as well.
package layers
