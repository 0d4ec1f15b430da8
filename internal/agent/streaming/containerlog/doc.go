// Package containerlog reads the log files that container runtimes write, one record per line:
//
//	2026-08-01T12:00:00.123456789Z stdout F the text of a line
//	2026-08-01T12:00:00.123456789Z stderr P the beginning of a long line
//
// A record with the tag P has no end of line: the next record of its stream goes on with it. A file that grows is
// followed, also when it is rotated, that is renamed and replaced by a new one; no record is lost or shown twice then.
package containerlog
