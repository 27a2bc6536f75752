-- Trips of New York's for-hire vehicles by place, month, kind of day, weather and time of day. The weather of a day
-- comes from the station in Central Park.
--
--   cd where trips/ and central_park_weather.csv are
--   millstream query -f weather.sql -o trips_by_weather.parquet --ranks 2
SELECT
  PULocationID, DOLocationID,
  month(pickup_datetime) AS month,
  isodow(pickup_datetime) <= 5 AS weekday,
  w.PRCP > 0.1 AS wet,
  CASE WHEN hour(pickup_datetime) IN (8, 9, 10) THEN 'morning'
       WHEN hour(pickup_datetime) IN (11, 12, 13, 14, 15) THEN 'midday'
       WHEN hour(pickup_datetime) IN (16, 17, 18) THEN 'afternoon'
       WHEN hour(pickup_datetime) IN (19, 20, 21) THEN 'evening'
       ELSE 'other' END AS time_of_day,
  count(hvfhs_license_num) AS trips,
  avg(trip_miles) AS average_miles
FROM 'trips/*.parquet' AS t
JOIN 'central_park_weather.csv' AS w ON CAST(t.pickup_datetime AS DATE) = w.DATE
GROUP BY ALL
ORDER BY ALL
