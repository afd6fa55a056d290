// Package model has the rows of the shop.
package model

import (
	"strconv"
	"time"
)

type (
	CustomerID int64
	OrderID    int64
	ProductID  string
)

func (id CustomerID) String() string { return strconv.FormatInt(int64(id), 10) }
func (id OrderID) String() string    { return strconv.FormatInt(int64(id), 10) }
func (id ProductID) String() string  { return string(id) }

type Customer struct {
	ID    CustomerID
	Email string
}

type Order struct {
	ID       OrderID
	Customer CustomerID
	Lines    []Line
	Placed   time.Time
}

type Line struct {
	Product  ProductID
	Quantity int
}

type Product struct {
	ID    ProductID
	Stock int
}

// Region is where the shop is.
const Region = "eu"
