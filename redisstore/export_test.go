package redisstore

// CoalescedLua is the script for coalesced requests.
var CoalescedLua = coalescedScript.text
