module example.com/testdata

go 1.26.0
