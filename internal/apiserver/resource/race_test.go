//go:build race

package resource_test

// underRace is whether the race detector looks on, which makes work many times slower.
const underRace = true
