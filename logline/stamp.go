package logline

import "time"

// stamp is a time as it was read, not yet on the log's line of time.
type stamp struct {
	at   time.Time
	date Date // DateTold, YearUnknown, DateUnknown; NoTime where there is none
	zone Zone
}

// timeOfDay reads HH:MM:SS at a place.
func timeOfDay(b []byte, i int) (time.Duration, bool) {
	if i < 0 || i+8 > len(b) || b[i+2] != ':' || b[i+5] != ':' || i+8 < len(b) && isDigit(b[i+8]) {
		return 0, false
	}
	hour, minute, second := two(b[i:]), two(b[i+3:]), two(b[i+6:])
	if hour < 0 || minute < 0 || second < 0 || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second, true
}

// date reads the date that b ends with, MM-DD or YYYY-MM-DD and a blank or T, and how long it is: short without a year, full with one.
func date(b []byte) (day time.Time, short, full int) {
	day = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	n := len(b)
	if n < 6 || b[n-1] != ' ' && b[n-1] != 'T' || b[n-4] != '-' {
		return day, 0, 0
	}
	month, of := two(b[n-6:]), two(b[n-3:])
	if month < 1 || month > 12 || of < 1 || of > 31 {
		return day, 0, 0
	}
	if n >= 11 && b[n-7] == '-' {
		century, year := two(b[n-11:]), two(b[n-9:])
		if century < 0 || year < 0 {
			return day, 0, 0
		}
		return time.Date(century*100+year, time.Month(month), of, 0, 0, 0, 0, time.UTC), 0, 11
	}
	return time.Date(0, time.Month(month), of, 0, 0, 0, 0, time.UTC), 6, 0
}

// two is a number of two digits, -1 if it is none.
func two(b []byte) int {
	if !isDigit(b[0]) || !isDigit(b[1]) {
		return -1
	}
	return int(b[0]-'0')*10 + int(b[1]-'0')
}

// fraction takes ".123" or ",123" off the beginning, and adds it to a time.
func fraction(b []byte, at time.Time) ([]byte, time.Time) {
	if len(b) < 2 || b[0] != '.' && b[0] != ',' || !isDigit(b[1]) {
		return b, at
	}
	i, unit := 1, time.Second
	for ; i < len(b) && isDigit(b[i]); i++ {
		unit /= 10
		at = at.Add(time.Duration(b[i]-'0') * unit)
	}
	return b[i:], at
}
