package dashboard

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/survey"
)

// anewFactor is how many times as long as it took to make a view it may be renewed: what only a new one shows
// is then shown late in a large fleet, and costs a tenth of a core at most.
const anewFactor = 10

// unusedAfter is when a view is dropped at which no page looks any more.
const unusedAfter = time.Minute

// views are those of the DaemonSets that pages look at.
type views map[types.UID]*kept

type kept struct {
	view *survey.View
	// made is when, cost how long that took, used the time of the last survey that it was asked for.
	made time.Time
	cost time.Duration
	used time.Time
}

// of returns the view of a DaemonSet in a survey that is no older than those of before.
func (k *views) of(s *survey.Survey, ds *appsv1.DaemonSet) (*survey.View, error) {
	for uid, other := range *k {
		if s.Now.Sub(other.used) > unusedAfter {
			delete(*k, uid)
		}
	}
	mine := (*k)[ds.UID]
	if mine != nil && time.Since(mine.made) < anewFactor*mine.cost && mine.view.Renew(s) {
		mine.used = s.Now
		return mine.view, nil
	}
	begin := time.Now()
	v, err := s.View(ds)
	if err != nil {
		return nil, err
	}
	if *k == nil {
		*k = views{}
	}
	(*k)[ds.UID] = &kept{view: v, made: begin, cost: time.Since(begin), used: s.Now}
	return v, nil
}
