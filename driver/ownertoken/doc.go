// Package ownertoken writes and reads what a token that dibs makes says of its lease: the client that
// made it, its kind, its limit and its label. It is for authors of stores, and of programs that show
// states.
//
// Such a token is host:pid:client:random or host:pid:client:kind-random, and may end in :label. A
// token that the application has chosen says nothing.
package ownertoken
