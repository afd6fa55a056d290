package doctor

var Wanted = wanted
