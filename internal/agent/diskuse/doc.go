// Package diskuse measures what is below folders that pods fill, at a bounded cost.
//
// A pod can make a million files, folders within folders without end, names that are
// longer in all than a path may be, and can move and remove them while they are
// counted. So a folder is walked entry by entry, relative to the folder it is in, with
// one open folder and little memory, and never for longer than the caller allows. A walk
// that is not finished goes on at the next look; until then what was found so far
// counts, or what the last whole walk found, if that was more.
//
//	walk      one walk, which can be interrupted and resumed anywhere
//	meter     the walks of all folders that are looked at
package diskuse
