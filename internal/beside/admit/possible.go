package admit

import (
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// possible returns an error for limits that an API server would not store. It looks at what is written after admission
// alone, so it does not see what is kept beside a DaemonSet, and would refuse to have that back.
func possible(s appsv1.DaemonSetUpdateStrategy) error {
	if s.RollingUpdate == nil {
		return nil
	}
	unavailable, err := limit(s.RollingUpdate.MaxUnavailable, 1)
	if err != nil {
		return fmt.Errorf("maxUnavailable %w", err)
	}
	surge, err := limit(s.RollingUpdate.MaxSurge, 0)
	switch {
	case err != nil:
		return fmt.Errorf("maxSurge %w", err)
	case unavailable == 0 && surge == 0:
		return errors.New("maxUnavailable may not be 0 where maxSurge is 0")
	case unavailable != 0 && surge != 0:
		return errors.New("maxSurge may not be set where maxUnavailable is")
	}
	return nil
}

// limit is a number of nodes, or percent of them, and otherwise what stands for none.
func limit(v *intstr.IntOrString, otherwise int) (int, error) {
	if v == nil {
		return otherwise, nil
	}
	if v.Type == intstr.String && len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, fmt.Errorf("%q is no number of nodes and no percentage", v.StrVal)
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
	switch {
	case err != nil:
		return 0, err
	case n < 0, n > 100 && strings.HasSuffix(v.String(), "%"):
		return 0, fmt.Errorf("%s is no number of nodes", v)
	}
	return n, nil
}
