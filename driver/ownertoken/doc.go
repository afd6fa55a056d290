// Package ownertoken writes and reads the tokens made by dibs. Such a token contains the lease's
// client, kind, limit and label. The package is for store authors, and for programs that show
// states.
//
// The form is host:pid:client:random or host:pid:client:kind-random, with an optional :label at the
// end. A token chosen by the application contains nothing.
package ownertoken
