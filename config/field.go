package config

import (
	"fmt"
	"time"
)

// put stores a value that its kind parsed into the field it belongs to.
func put(field, v any) {
	switch f := field.(type) {
	case *string:
		*f = v.(string)
	case *bool:
		*f = v.(bool)
	case *int:
		*f = v.(int)
	case *int64:
		*f = v.(int64)
	case *time.Duration:
		*f = v.(time.Duration)
	case *[]string:
		*f = v.([]string)
	default:
		panic(fmt.Sprintf("config: no field of type %T", field))
	}
}

// get is the value of a field.
func get(field any) any {
	switch f := field.(type) {
	case *string:
		return *f
	case *bool:
		return *f
	case *int:
		return *f
	case *int64:
		return *f
	case *time.Duration:
		return *f
	case *[]string:
		return *f
	}
	panic(fmt.Sprintf("config: no field of type %T", field))
}

// number is a value that has bounds.
func number(v any) int64 {
	switch n := v.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case time.Duration:
		return int64(n)
	}
	panic(fmt.Sprintf("config: %T has no bounds", v))
}
