package redisstore

// ManyLua is what is sent for requests that go together.
var ManyLua = coalescedScript.text
