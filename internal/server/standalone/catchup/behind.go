package catchup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// behind are the objects that a cache has not seen as the API has them: each in the version that it is to reach, and
// without one those that it is to lose.
func behind(live map[types.UID]object, at string, cached map[types.UID]object) (map[types.UID]object, error) {
	out := map[types.UID]object{}
	for uid, l := range live {
		c, has := cached[uid]
		reached, err := reaches(c, has, l)
		if err != nil {
			return nil, err
		}
		if !reached {
			out[uid] = l
		}
	}
	for uid, c := range cached {
		if _, is := live[uid]; is {
			continue
		}
		order, err := resourceversion.CompareResourceVersion(c.version, at)
		if err != nil {
			return nil, fmt.Errorf("compare the versions of %s/%s and of a list: %w", c.namespace, c.name, err)
		}
		if order <= 0 { // one with a later version was made after the list
			out[uid] = object{namespace: c.namespace, name: c.name}
		}
	}
	return out, nil
}

// left are those of the wanted objects that the cache has still not seen. Exists is asked about those that it lacks.
func left(wanted, cached map[types.UID]object, exists func(types.UID, object) (bool, error)) (map[types.UID]object,
	error) {
	out := map[types.UID]object{}
	for uid, w := range wanted {
		c, has := cached[uid]
		if w.version == "" {
			if has {
				out[uid] = w
			}
			continue
		}
		reached, err := reaches(c, has, w)
		if err == nil && !has {
			var is bool
			is, err = exists(uid, w)
			reached = !is
		}
		if err != nil {
			return nil, err
		}
		if !reached {
			out[uid] = w
		}
	}
	return out, nil
}

func reaches(c object, has bool, w object) (bool, error) {
	if !has {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(c.version, w.version)
	if err != nil {
		return false, fmt.Errorf("compare the versions of %s/%s: %w", w.namespace, w.name, err)
	}
	return order >= 0, nil
}
