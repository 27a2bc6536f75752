// The query of weather.sql as lazy frames. A frame is the text of a query, which this program prints:
//
//   build/bin/weather_frames | build/bin/millstream query -f - -o trips_by_weather.parquet --ranks 2

#include <cstdio>

#include "plan/frame.h"

using namespace millstream;  // NOLINT

int main() {
  const Frame weather = scan("central_park_weather.csv").as("w");
  const Frame trips = scan("trips/*.parquet")
                          .as("t")
                          .join(weather, "CAST(t.pickup_datetime AS DATE) = w.DATE")
                          .group_by(
                              {
                                  "PULocationID",
                                  "DOLocationID",
                                  "month(pickup_datetime) AS month",
                                  "isodow(pickup_datetime) <= 5 AS weekday",
                                  "w.PRCP > 0.1 AS wet",
                                  "CASE WHEN hour(pickup_datetime) IN (8, 9, 10) THEN 'morning' "
                                  "WHEN hour(pickup_datetime) IN (11, 12, 13, 14, 15) THEN 'midday' "
                                  "WHEN hour(pickup_datetime) IN (16, 17, 18) THEN 'afternoon' "
                                  "WHEN hour(pickup_datetime) IN (19, 20, 21) THEN 'evening' "
                                  "ELSE 'other' END AS time_of_day",
                              },
                              {"count(hvfhs_license_num) AS trips", "avg(trip_miles) AS average_miles"})
                          .order_by({"ALL"});
  std::puts(trips.sql().c_str());
  return 0;
}
