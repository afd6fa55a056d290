package doctor

var FunctionsOf = functionsOf
