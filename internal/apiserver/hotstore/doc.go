// Package hotstore keeps the objects of kinds that change often, as they are in the
// embedded database, and answers reads and watches of them. It stands where the library
// has its watch cache. See README.md for what it promises.
package hotstore
