// Package cronschedule knows when the schedule of a CronJob is due. Time is an
// argument.
package cronschedule

import (
	"fmt"
	"time"
	_ "time/tzdata" // time zones on machines that have no list of them

	"github.com/robfig/cron/v3"
)

// Schedule is a schedule that can be followed.
type Schedule struct {
	next cron.Schedule
	zone *time.Location
}

// Parse reads a schedule: five fields, or a word such as @daily, or @every with a
// duration. An empty zone is the one of the process.
func Parse(text, zone string) (s Schedule, err error) {
	defer func() {
		if p := recover(); p != nil { // the library does on some texts that name a zone
			err = fmt.Errorf("invalid schedule format: %v", p)
		}
	}()
	s.zone = time.Local
	if zone != "" {
		s.zone, err = time.LoadLocation(zone)
		if err != nil {
			return s, fmt.Errorf("invalid timeZone: %q: %w", zone, err)
		}
	}
	s.next, err = cron.ParseStandard(text)
	return s, err
}

// Zone is the time zone in which the schedule is meant.
func (s Schedule) Zone() *time.Location { return s.zone }

// Next is the first time after t at which the schedule is due; the zero time for
// never.
func (s Schedule) Next(t time.Time) time.Time { return s.next.Next(t.In(s.zone)) }

// Last is the last time after since and until now at which the schedule was due; the
// zero time if it was not.
func (s Schedule) Last(since, now time.Time) time.Time {
	if every, ok := s.next.(cron.ConstantDelaySchedule); ok {
		first := s.Next(since)
		if first.After(now) {
			return time.Time{}
		}
		return first.Add(now.Sub(first) / every.Delay * every.Delay)
	}
	// The schedule can only be asked forward: go back further and further.
	for window := time.Minute; ; window *= 2 {
		from := now.Add(-window)
		if !from.After(since) {
			from = since
		}
		if due := s.Next(from); !due.IsZero() && !due.After(now) {
			return s.lastAfter(due, now)
		}
		if from.Equal(since) {
			return time.Time{}
		}
	}
}

func (s Schedule) lastAfter(due, now time.Time) time.Time {
	for next := s.Next(due); !next.IsZero() && !next.After(now); next = s.Next(next) {
		due = next
	}
	return due
}

// Missed counts how often the schedule was due after since and until now, up to most.
func (s Schedule) Missed(since, now time.Time, most int) (n int) {
	for due := s.Next(since); n < most && !due.IsZero() && !due.After(now); due = s.Next(due) {
		n++
	}
	return n
}

// Every is the pause between two times, for a schedule that names nothing else.
func (s Schedule) Every() (time.Duration, bool) {
	every, ok := s.next.(cron.ConstantDelaySchedule)
	return every.Delay, ok
}
