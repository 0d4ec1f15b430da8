// Package space decides what is done about the size of a database, so that one that was full takes writes again.
//
// The file of a database never becomes smaller by itself: what is compacted leaves free pages in it, and the quota
// counts the file. Only defragmenting gives the pages back. A database that has reached its quota raises an alarm and
// refuses writes until somebody disarms it.
package space

import "time"

const (
	// mostKept is how many of the last revisions stay readable when space is short.
	mostKept = 1000
	// revisionShare is the part of the quota that one kept revision may take. A request has 1.5 MiB at most, so
	// that a thousand revisions fit easily into 8 GiB.
	revisionShare = 8 << 20
	// compactSeldom and compactOften are the least time between two compactions, as space is short or nearly gone.
	compactSeldom, compactOften = time.Minute, 10 * time.Second
	// defragmentSeldom and defragmentOften are the same for defragmenting, without an alarm and with one.
	defragmentSeldom, defragmentOften = 5 * time.Minute, 10 * time.Second
	// defragmentBlindly is the same for a database that is full and seems to have nothing free.
	defragmentBlindly = 20 * time.Second
	// Margin is how much of the disk, in bytes, defragmenting leaves for the log.
	Margin = 256 << 20
)

// Facts are what is known of a database at one moment. Sizes are in bytes.
type Facts struct {
	Now time.Time
	// Size is that of the file, InUse what of it is no free page, and Quota the size at which writes end.
	Size, InUse, Quota int64
	// Room is what is free on the disk.
	Room int64
	// Revision is the last one, and Compacted the last that was compacted.
	Revision, Compacted int64
	// Leads reports whether this member decides for all; one that is alone does.
	Leads bool
	// Alarm reports whether writes are refused since this member was full.
	Alarm bool
}

// Action is what is to be done. At most one of CompactTo, Defragment and Disarm is set.
type Action struct {
	// CompactTo is the revision before which all is to be forgotten; 0 for none.
	CompactTo int64
	// Defragment asks for the file to be written without its free pages.
	Defragment bool
	// Disarm asks for the end of this member's alarm.
	Disarm bool
	// Tell is what an operator should read, once; empty for nothing.
	Tell Word
}

// Word is the state of the space that an operator is told of.
type Word string

// What an operator is told.
const (
	Filling Word = "The database has reached 60 % of its quota"
	Full    Word = "The database is full and refuses writes; what is old is removed now. If this stays, delete objects"
	NoRoom  Word = "The disk has no room to defragment the database; free some space"
	Relaxed Word = "The database has room again"
)

// Keeper remembers what was done and told. Its zero value is ready for use.
type Keeper struct {
	compacted, defragmented time.Time
	told                    Word
}

// Next decides what is to be done now.
func (k *Keeper) Next(f Facts) (out Action) {
	if f.Quota <= 0 {
		return out
	}
	switch to := f.Revision - kept(f.Quota); {
	case f.Alarm && f.Size < f.Quota/10*9:
		out.Disarm = true
	case f.Leads && to > f.Compacted && f.short() && f.Now.Sub(k.compacted) >= f.compactEvery():
		out.CompactTo, k.compacted = to, f.Now
	case k.defragments(f):
		out.Defragment = f.Room >= f.InUse+Margin
		if out.Defragment {
			k.defragmented = f.Now
		}
	}
	out.Tell = k.tell(f)
	return out
}

// defragments reports whether it is time to. What is free shows only once something is written, and a
// database that is full writes nothing: there it is tried, however little seems to be free.
func (k *Keeper) defragments(f Facts) bool {
	since := f.Now.Sub(k.defragmented)
	return f.fragmented() && since >= f.defragmentEvery() || f.Alarm && since >= defragmentBlindly
}

// tell returns the state if it is not the one that was told last.
func (k *Keeper) tell(f Facts) Word {
	word := Relaxed
	switch {
	case f.fragmented() && f.Room < f.InUse+Margin:
		word = NoRoom
	case f.Alarm:
		word = Full
	case f.InUse >= f.Quota/10*6:
		word = Filling
	case f.InUse > f.Quota/2 && k.told != "":
		word = k.told // around the mark it is not told again and again
	}
	if word == k.told || word == Relaxed && k.told == "" {
		return ""
	}
	k.told = word
	return word
}

// kept is how many of the last revisions stay readable when space is short.
func kept(quota int64) int64 { return min(mostKept, quota/revisionShare) }

// short reports whether old revisions must go, whatever was promised to those who read lists in parts.
func (f Facts) short() bool { return f.Alarm || f.InUse > f.Quota/2 }

func (f Facts) compactEvery() time.Duration {
	if f.Alarm || f.InUse > f.Quota/4*3 {
		return compactOften
	}
	return compactSeldom
}

func (f Facts) defragmentEvery() time.Duration {
	if f.Alarm {
		return defragmentOften
	}
	return defragmentSeldom
}

// fragmented reports whether defragmenting is worth its pause: half of a large file is free, or a file that is near
// the quota, which counts free pages as well, would be clearly smaller.
func (f Facts) fragmented() bool {
	switch {
	case f.Alarm:
		return f.InUse < f.Size/10*9
	case f.Size > f.Quota/10*8:
		return f.InUse < f.Size/4*3
	}
	return f.Size > f.Quota/8 && f.InUse < f.Size/2
}
